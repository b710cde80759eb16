// A savepoint that was asked for, by a button or with the end of a job: waits until it is there or has failed.
import { get, jobPath } from "./api.js";

const POLL_MS = 500;

/** The path of the savepoint; `waiting` is called between two looks and ends the wait by answering false. */
export async function savepointPath(job, request, waiting = () => true) {
  const path = jobPath(job, "savepoints", request);
  for (;;) {
    const { status, operation } = await get(path);
    if (status.id !== "IN_PROGRESS") {
      if (operation?.["failure-cause"]) throw new Error(causeText(operation["failure-cause"]));
      return operation?.location;
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    if (!waiting()) return undefined;
  }
}

/** Flink sends a cause as an object with the trace in it; in lists it is plain text. */
export const causeText = (cause) =>
  typeof cause === "string" ? cause : cause["stack-trace"] || cause.class || JSON.stringify(cause);

import java.util.concurrent.CountDownLatch
import org.apache.spark.sql.{Dataset, Row, SparkSession}
import org.apache.spark.sql.streaming.{OutputMode, StatefulProcessor, TTLConfig, TimeMode, TimerValues, ValueState}
import scala.io.StdIn

/** Running (count, sum) per key with a row for every row: state is read and written once per key and micro-batch. */
class Totals extends StatefulProcessor[Long, (Long, Long), (Long, Long, Long)] {
  import implicits._

  @transient private var totals: ValueState[(Long, Long)] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit =
    totals = getHandle.getValueState[(Long, Long)]("totals", TTLConfig.NONE)

  override def handleInputRows(
      key: Long,
      rows: Iterator[(Long, Long)],
      timers: TimerValues): Iterator[(Long, Long, Long)] = {
    var (count, sum) = if (totals.exists()) totals.get() else (0L, 0L)
    val results = rows.map { row =>
      count += 1
      sum += row._2
      (key, count, sum)
    }.toArray
    totals.update((count, sum))
    results.iterator
  }
}

/** A query for every line of standard input.
  *
  * A line is `rows-of-a-micro-batch micro-batches key-expression directory`; the answer is
  * `RESULT milliseconds-without-the-first rows sum-of-counts sum-of-sums`.
  */
object TransformTotals {
  def main(arguments: Array[String]): Unit = {
    val spark = SparkSession.builder().getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    println("READY")
    Iterator.continually(StdIn.readLine()).takeWhile(_ != null).foreach { line =>
      val Array(size, batches, directory, key) = line.split(" ", 4)
      println("RESULT " + run(spark, size.toInt, batches.toInt, directory, key))
    }
    spark.stop()
  }

  private def run(spark: SparkSession, size: Int, batches: Int, directory: String, key: String): String = {
    import spark.implicits._

    val found = new Array[Long](3)
    val enough = new CountDownLatch(1)
    val source = spark.readStream
      .format("rate-micro-batch")
      .option("rowsPerBatch", size)
      .option("numPartitions", 2)
      .load()
    val totals = source
      .selectExpr(s"$key AS _1", s"$key + 1 AS _2")
      .as[(Long, Long)]
      .groupByKey(_._1)
      .transformWithState(new Totals, TimeMode.None(), OutputMode.Append())
      .toDF("k", "n", "t")
    val add = (frame: Dataset[Row], batch: Long) =>
      if (batch < batches) {
        val sums = frame.selectExpr("count(*)", "sum(n)", "sum(t)").head()
        found.indices.foreach(at => found(at) += sums.getLong(at))
        if (batch == batches - 1) enough.countDown()
      }
    val query = totals.writeStream
      .outputMode("append")
      .option("checkpointLocation", directory)
      .foreachBatch(add)
      .start()
    while (!enough.await(1, java.util.concurrent.TimeUnit.SECONDS)) query.exception.foreach(throw _)
    while (query.lastProgress == null || query.lastProgress.batchId < batches - 1) Thread.sleep(50)
    val progress = query.recentProgress.filter(each => each.batchId > 0 && each.batchId < batches)
    query.stop()
    val milliseconds = progress.map(each => each.durationMs.get("triggerExecution").longValue).sum
    (milliseconds +: found).mkString(" ")
  }
}

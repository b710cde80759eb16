# A driver of tidemark jobs: Python, Java and the package.   docker build -t tidemark .
#
#   docker run --rm -v "$PWD:/job" tidemark run count.py
#
# The page listens on the container's loopback. To see it: -p 8081:8081 -e TIDEMARK_REST_BIND_ADDRESS=0.0.0.0 -e TIDEMARK_REST_TOKEN=...
# Executors of a cluster need the same packages in their own image (docs/guides/running-on-a-cluster.md).
FROM python:3.12-slim-bookworm AS build
WORKDIR /source
COPY requirements.lock pyproject.toml MANIFEST.in README.md CHANGELOG.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim-bookworm
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
# The versions that were tested; what only developers need is not installed.
COPY requirements.lock /tmp/requirements.lock
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --constraint /tmp/requirements.lock "$(ls /wheels/*.whl)[kafka]"
RUN useradd --create-home --uid 10001 tidemark
USER tidemark
ENV TIDEMARK_HOME=/home/tidemark/.tidemark \
    PYTHONUNBUFFERED=1
WORKDIR /job
EXPOSE 8081
ENTRYPOINT ["tidemark"]
CMD ["doctor"]

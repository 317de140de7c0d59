# An image of eos-replicate without Spark:
#
#   docker build -t eos-replicate --build-arg VERSION="$(python -m hatchling version)" .
#   docker run --read-only -v "$PWD/flows.yaml:/etc/eos/flows.yaml:ro" eos-replicate
#
# BASE is any Debian with Python 3.11 or later and its venv module. VERSION is that of the package and of the image's label: no
# repository is copied whose tags would tell it. docs/operate/container.md says how to run it.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
WORKDIR /src
COPY constraints-build.txt constraints-run.txt ./
# The environment that is copied has no pip: it is installed by that of another one. All packages are pinned with their hashes.
RUN python3 -m venv /build \
 && /build/bin/python -m pip install --quiet --require-hashes --no-deps -r constraints-build.txt \
 && python3 -m venv --without-pip /opt/eos \
 && /build/bin/python -m pip --python /opt/eos/bin/python install --quiet --no-compile --require-hashes --no-deps -r constraints-run.txt
COPY pyproject.toml README.md LICENSE ./
COPY cli ./cli
COPY embedded_broker ./embedded_broker
COPY kafka_records ./kafka_records
COPY replicator ./replicator
ARG VERSION=0.0.0
RUN SETUPTOOLS_SCM_PRETEND_VERSION="$VERSION" /build/bin/python -m pip wheel --quiet --no-deps --no-build-isolation -w /build/wheel . \
 && /build/bin/python -m pip --python /opt/eos/bin/python install --quiet --no-compile --no-deps /build/wheel/*.whl
# Python keeps the bytecode of what `run`, `status` and `broker` import, and of no more: the root file system is read-only later.
RUN env -u PYTHONDONTWRITEBYTECODE /opt/eos/bin/python -c \
    'import replicator.flow.daemon, replicator.inspect.planning, replicator.observe.web, cli.main, cli.commands.run, cli.commands.status, cli.commands.broker' \
 && /opt/eos/bin/eos-replicate --version

FROM ${BASE}
COPY --from=build /opt/eos /opt/eos
RUN groupadd --gid 10001 eos && useradd --uid 10001 --gid eos --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin eos
ARG VERSION=0.0.0
LABEL org.opencontainers.image.version="$VERSION"
ENV PATH=/opt/eos/bin:$PATH PYTHONDONTWRITEBYTECODE=1 EOS_HEALTH_URL=http://127.0.0.1:9308/healthz
USER 10001:10001
EXPOSE 9308
# Where the flow file has no `metrics: {listen: 0.0.0.0:9308}`, run it with --no-healthcheck.
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
  CMD ["python3", "-c", "import os, urllib.request as web; web.urlopen(os.environ['EOS_HEALTH_URL'], timeout=4)"]
ENTRYPOINT ["eos-replicate"]
CMD ["run", "-c", "/etc/eos/flows.yaml", "--log-format", "json"]

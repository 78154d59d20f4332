# xmtc without a GPU: prediction, scoring, the server, and training in one process.
#   docker build -t xmtc:0.1.0 --build-arg PIP_EXTRA_INDEX_URL=INDEX .
#   docker run --rm -p 8000:8000 -e XMTC_TOKEN=… -v "$PWD:/workspace" xmtc:0.1.0 serve model --host 0.0.0.0
# INDEX is PyTorch's index of wheels for CPUs; without it the image carries gigabytes of CUDA libraries.
# Without Ray and DeepSpeed, which Dockerfile.gpu has.
FROM python:3.11-slim-bookworm AS build
ARG PIP_EXTRA_INDEX_URL=""
RUN python -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY xmtc xmtc
RUN pip install --no-cache-dir --disable-pip-version-check -c constraints.txt .

FROM python:3.11-slim-bookworm
# PyTorch needs OpenMP.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 xmtc \
    && install -d -o xmtc -g xmtc /workspace
COPY --from=build /opt/venv /opt/venv
COPY launch /opt/xmtc/launch
COPY configs /opt/xmtc/configs
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1
USER 1000
WORKDIR /workspace
ENTRYPOINT ["xmtc"]
CMD ["--help"]

# A server of the page. Without a build argument torch is the one of the Python package index, whose Linux build runs on
# CUDA and on a CPU. TORCH_INDEX names another index, as PyTorch's own for a CPU, whose build is several GB smaller.
ARG PYTHON_VERSION=3.12
FROM python:${PYTHON_VERSION}-slim-bookworm

ARG TORCH_INDEX=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1

WORKDIR /app
COPY requirements.txt ./
RUN grep '^torch' requirements.txt > torch.txt \
    && if [ -n "$TORCH_INDEX" ]; then pip install -r torch.txt --index-url "$TORCH_INDEX"; fi \
    && pip install -r requirements.txt

COPY app.py LICENSE README.md ./
COPY assets ./assets
COPY specdemo ./specdemo

# Models are kept in /data: mount a volume there. It is the home of a user without rights elsewhere.
RUN useradd --uid 1000 --home-dir /data --create-home specdemo
USER 1000
ENV HOME=/data SPECDEMO_CACHE=/data/models HF_HOME=/data/huggingface NUMBA_CACHE_DIR=/data/numba SPECDEMO_HOST=0.0.0.0 SPECDEMO_PORT=7860
VOLUME /data
EXPOSE 7860

# 200 while the model loads too; 503 when it could not be loaded.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{os.environ[\"SPECDEMO_PORT\"]}/health', timeout=5)"]

ENTRYPOINT ["python", "app.py", "--no-browser"]

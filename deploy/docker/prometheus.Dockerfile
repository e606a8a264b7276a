# Prometheus, set up for the services of docker-compose.yml.

# bookworm-20260918-slim. Tests without a registry put an image of their own in its place.
ARG DEBIAN=debian:bookworm-slim@sha256:3783cc01769c7b2b1b83a5c5ad96c815348e28ed7da68e2e3687004faa906251

FROM ${DEBIAN}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends prometheus \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 millrace \
    && useradd --uid 10001 --gid millrace --home-dir /nonexistent \
        --shell /usr/sbin/nologin millrace \
    && rm -rf /var/lib/prometheus \
    && install --directory --owner=millrace --group=millrace --mode=0700 /var/lib/prometheus
COPY deploy/monitoring/prometheus.yml deploy/monitoring/alerts.yml /etc/prometheus/
# The token is there when it runs.
RUN promtool check config --syntax-only /etc/prometheus/prometheus.yml
USER 10001:10001
EXPOSE 9090
ENTRYPOINT ["prometheus", "--config.file=/etc/prometheus/prometheus.yml", \
            "--storage.tsdb.path=/var/lib/prometheus", "--storage.tsdb.retention.size=1GB", \
            "--web.listen-address=0.0.0.0:9090"]

# nginx in containers: `origin`, the example with a video of its own, `balancer`, which spreads tunnels
# over several servers, and `live`, which publishes the live pages of the proxies.

# bookworm-20260918-slim. Tests without a registry put an image of their own in its place.
ARG DEBIAN=debian:bookworm-slim@sha256:3783cc01769c7b2b1b83a5c5ad96c815348e28ed7da68e2e3687004faa906251

FROM ${DEBIAN} AS video
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ffmpeg \
    && rm -rf /var/lib/apt/lists/*
COPY deploy/docker/make-video.sh /
RUN ["/make-video.sh", "/media"]

FROM ${DEBIAN} AS nginx
# Debian's nginx logs to files below /var/log/nginx unless told otherwise.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends \
        curl libnginx-mod-http-lua libnginx-mod-stream lua-cjson nginx-light \
    && rm -rf /var/lib/apt/lists/* /var/log/nginx/* \
    && groupadd --gid 10001 millrace \
    && useradd --uid 10001 --gid millrace --home-dir /nonexistent \
        --shell /usr/sbin/nologin millrace
USER 10001:10001
STOPSIGNAL SIGQUIT

FROM nginx AS balancer
COPY deploy/docker/balancer.conf /etc/nginx/nginx.conf
COPY --chmod=0755 deploy/docker/balancer.sh /usr/local/bin/
EXPOSE 4433/udp
ENTRYPOINT ["balancer.sh"]

FROM nginx AS live
COPY deploy/docker/live.conf /etc/nginx/nginx.conf
EXPOSE 8082
HEALTHCHECK --interval=2s --timeout=2s --retries=3 --start-period=10s \
    CMD ["curl", "--fail", "--silent", "--show-error", "--max-time", "2", "--output", "/dev/null", \
         "http://127.0.0.1:8082/"]
ENTRYPOINT ["nginx", "-e", "stderr"]

FROM nginx AS origin
USER 0:0
# What it would log goes to where containers log, and what it would write to volumes.
RUN ln --symbolic /dev/stdout /var/log/nginx/millrace-origin.log \
    && ln --symbolic /dev/stderr /var/log/nginx/millrace-origin.error.log \
    && install --directory --owner=millrace --group=millrace --mode=0755 \
        /run/millrace-nginx /srv/millrace/video/.incoming
COPY --from=video /media /srv/millrace/video/vod
COPY nginx-conf/origin /etc/millrace/nginx/origin
COPY nginx-conf/lua /etc/millrace/nginx/lua
COPY --chmod=0755 deploy/docker/origin.sh /usr/local/bin/
USER 10001:10001
EXPOSE 80
HEALTHCHECK --interval=2s --timeout=2s --retries=3 --start-period=10s \
    CMD ["curl", "--fail", "--silent", "--show-error", "--max-time", "2", "--output", "/dev/null", \
         "http://127.0.0.1/healthz"]
ENTRYPOINT ["origin.sh"]

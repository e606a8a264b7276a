# The player's page, and an nginx that serves it. Every other path goes to the client edge, so that
# the page finds the manifest at its own address.

# Where the page comes from: `build` (this source), or `prebuilt` (what `make build` left in
# player/dist/page).
ARG PAGE=build

# bookworm-20260918-slim. Tests without a registry put an image of their own in its place.
ARG DEBIAN=debian:bookworm-slim@sha256:3783cc01769c7b2b1b83a5c5ad96c815348e28ed7da68e2e3687004faa906251

FROM node:22-bookworm-slim@sha256:48e4b67d85f87bd551df43704e24d252f56cc5f8e9718841aace50f19948f0f9 AS build
WORKDIR /player
# An optional secret: the authorities to trust.
COPY player/package.json player/package-lock.json player/.npmrc ./
RUN --mount=type=cache,target=/root/.npm \
    --mount=type=secret,id=ca-bundle \
    if [ -e /run/secrets/ca-bundle ]; then export NODE_EXTRA_CA_CERTS=/run/secrets/ca-bundle; fi \
    && npm ci --no-audit --no-fund
COPY player .
# The style sheet and helpers that the live page of the proxies has too.
COPY ops/src/admin/dashboard /ops/src/admin/dashboard
RUN npx vite build -c vite.page.config.ts && mv dist/page /page

FROM scratch AS prebuilt
COPY player/dist/page /page

FROM ${PAGE} AS page

FROM ${DEBIAN}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends curl nginx-light \
    && rm -rf /var/lib/apt/lists/* /var/log/nginx/* \
    && groupadd --gid 10001 millrace \
    && useradd --uid 10001 --gid millrace --home-dir /nonexistent \
        --shell /usr/sbin/nologin millrace
COPY --from=page /page /srv/page
COPY deploy/docker/player-nginx.conf /etc/nginx/nginx.conf
USER 10001:10001
STOPSIGNAL SIGQUIT
EXPOSE 8081
HEALTHCHECK --interval=2s --timeout=2s --retries=3 --start-period=10s \
    CMD ["curl", "--fail", "--silent", "--show-error", "--max-time", "2", "--output", "/dev/null", \
         "http://127.0.0.1:8081/index.html"]
ENTRYPOINT ["nginx", "-e", "stderr"]

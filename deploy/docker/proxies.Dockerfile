# The images of both ends of the tunnel, by target: millrace-client near the viewer, millrace-server
# near the origin. The context is the top of the repository:
# docker build --file deploy/docker/proxies.Dockerfile --target millrace-client .

# Where the programs come from: `build` (compiles this source), or `prebuilt` (takes those that
# `make build` left in target/release, which must have been made on Debian 12 too).
ARG PROGRAMS=build

# bookworm-20260918-slim. Tests without a registry put an image of their own in its place.
ARG DEBIAN=debian:bookworm-slim@sha256:3783cc01769c7b2b1b83a5c5ad96c815348e28ed7da68e2e3687004faa906251

FROM ${DEBIAN} AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends \
        ca-certificates clang cmake curl g++ git libclang-dev make patch \
    && rm -rf /var/lib/apt/lists/*
ENV CARGO_HOME=/opt/cargo RUSTUP_HOME=/opt/rustup PATH=/opt/cargo/bin:$PATH
WORKDIR /src
COPY rust-toolchain.toml ./
# Two optional secrets, for networks that need them: `ca-bundle` are the authorities to trust,
# `cargo-config` is a configuration of cargo.
RUN --mount=type=secret,id=ca-bundle,target=/etc/ssl/certs/ca-certificates.crt \
    curl --proto '=https' --tlsv1.2 --fail --silent --show-error --output /tmp/rustup-init.sh \
        https://static.rust-lang.org/rustup/rustup-init.sh \
    && sh /tmp/rustup-init.sh -y --no-modify-path --profile minimal --default-toolchain none \
    && rustup toolchain install
COPY Cargo.toml Cargo.lock ./
COPY cc cc
COPY ops ops
COPY proxy-client proxy-client
COPY proxy-server proxy-server
COPY third_party/quiche third_party/quiche
COPY tunnel tunnel
# The commit for `--version`: the context has no repository.
ARG MILLRACE_COMMIT
RUN --mount=type=cache,target=/opt/cargo/registry \
    --mount=type=cache,target=/src/target \
    --mount=type=secret,id=ca-bundle,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=secret,id=cargo-config,target=/opt/cargo/config.toml \
    sed -i '/^    "\(lab\|tests\)/d' Cargo.toml \
    && third_party/quiche/prepare.sh \
    # Without --locked: the lock file also has what the lab and the tests need, which are not here.
    && cargo build --release --package millrace-client --package millrace-server \
    && install --target-directory=/usr/local/bin \
        target/release/millrace-client target/release/millrace-server

FROM scratch AS prebuilt
COPY target/release/millrace-client target/release/millrace-server /usr/local/bin/

FROM ${PROGRAMS} AS programs

FROM ${DEBIAN} AS proxy
RUN apt-get update \
    && apt-get install --yes --no-install-recommends curl libstdc++6 \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 millrace \
    && useradd --uid 10001 --gid millrace --home-dir /nonexistent \
        --shell /usr/sbin/nologin millrace \
    # Volumes mounted here begin with this owner and mode.
    && install --directory --owner=millrace --group=millrace --mode=0700 \
        /authority /certificates /certificates/server /certificates/client \
        /var/lib/millrace-server /admin
COPY --chmod=0755 deploy/docker/docker-entrypoint.sh /usr/local/bin/
# By number, so that Kubernetes can see that it is not root.
USER 10001:10001
HEALTHCHECK --interval=2s --timeout=2s --retries=3 --start-period=10s \
    CMD ["docker-entrypoint.sh", "healthy"]
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["run"]

FROM proxy AS millrace-client
COPY --from=programs /usr/local/bin/millrace-client /usr/local/bin/
COPY deploy/docker/client-role.sh /usr/local/lib/millrace/docker-role.sh
EXPOSE 8080 3128

FROM proxy AS millrace-server
COPY --from=programs /usr/local/bin/millrace-server /usr/local/bin/
COPY deploy/docker/server-role.sh /usr/local/lib/millrace/docker-role.sh
EXPOSE 4433/udp

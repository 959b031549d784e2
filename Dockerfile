# The operator's image:
#   docker build --tag REGISTRY/gamekeeper:0.1.0 --build-arg REVISION=$(git rev-parse HEAD) \
#     --build-arg SOURCE=$(git remote get-url origin) --build-arg CREATED=$(date -u +%FT%TZ) .
# (or buildah build). e2e/image/check.sh builds and checks the last stage.

# The base image of the build. A tag can be moved. For a reproducible build, pin the digest that
# `docker buildx imagetools inspect` prints:
#   --build-arg RUST_IMAGE=docker.io/library/rust:1.95-slim-bookworm@sha256:...
ARG RUST_IMAGE=docker.io/library/rust:1.95-slim-bookworm
FROM ${RUST_IMAGE} AS build
WORKDIR /src
# The dependencies have a layer of their own, which is cached until a manifest changes. Cargo requires source files for
# all members of the workspace, so this layer has empty placeholders.
COPY Cargo.toml Cargo.lock ./
COPY core/Cargo.toml core/
COPY kubectl-game/Cargo.toml kubectl-game/
COPY lint-command/Cargo.toml lint-command/
COPY model/Cargo.toml model/
COPY e2e/Cargo.toml e2e/
COPY e2e/attribute/Cargo.toml e2e/attribute/
COPY e2e/judge/Cargo.toml e2e/judge/
COPY e2e/image/placeholders.sh /
RUN /placeholders.sh && cargo build --release --locked --package gamekeeper --bin gamekeeper
COPY . .
# Cargo compares modification times: the sources must be newer than the builds of the placeholders.
RUN find src core/src kubectl-game/src lint-command/src -name '*.rs' -exec touch {} + \
    && cargo build --release --locked --package gamekeeper --bin gamekeeper \
    && cp target/release/gamekeeper /usr/local/bin/
# The program, the C library that it is linked with, and the CA certificates that hooks trust.
RUN e2e/image/files.sh /usr/local/bin/gamekeeper /image

# The image contains nothing else: no shell, no package manager, no writable files.
FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=
ARG SOURCE=
LABEL org.opencontainers.image.title="gamekeeper" \
      org.opencontainers.image.description="Runs game servers on Kubernetes without ever killing a match" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED" \
      org.opencontainers.image.source="$SOURCE" \
      org.opencontainers.image.url="$SOURCE"
COPY --from=build /image /
USER 65532:65532
EXPOSE 8080 9443
# On SIGTERM, the operator finishes its writes, releases the lease, and exits with code 0.
STOPSIGNAL SIGTERM
ENTRYPOINT ["/gamekeeper"]
CMD ["run"]

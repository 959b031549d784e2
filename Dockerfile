# The operator's image:
#   docker build --tag REGISTRY/gamekeeper:0.1.0 --build-arg REVISION=$(git rev-parse HEAD) \
#     --build-arg SOURCE=$(git remote get-url origin) --build-arg CREATED=$(date -u +%FT%TZ) .
# (or buildah build). e2e/image/check.sh builds the last stage and looks at what is in it.

# What it is built on. A tag can move: to build the same thing twice, add the digest that
# `docker buildx imagetools inspect` prints of it,
#   --build-arg RUST_IMAGE=docker.io/library/rust:1.95-slim-bookworm@sha256:...
# It is not written here, because this was made without a registry to ask for it.
ARG RUST_IMAGE=docker.io/library/rust:1.95-slim-bookworm
FROM ${RUST_IMAGE} AS build
WORKDIR /src
# Dependencies first, in a layer of their own, which stays until the manifests change. Of the program
# there is only a place to be: a workspace must have its members' sources.
COPY Cargo.toml Cargo.lock ./
COPY core/Cargo.toml core/
COPY kubectl-game/Cargo.toml kubectl-game/
COPY lint-command/Cargo.toml lint-command/
COPY model/Cargo.toml model/
COPY e2e/Cargo.toml e2e/
COPY e2e/judge/Cargo.toml e2e/judge/
COPY e2e/image/places.sh /
RUN /places.sh && cargo build --release --locked --package gamekeeper --bin gamekeeper
COPY . .
# Cargo goes by times: the sources must be newer than what was built of the places.
RUN find src core/src lint-command/src -name '*.rs' -exec touch {} + \
    && cargo build --release --locked --package gamekeeper --bin gamekeeper \
    && cp target/release/gamekeeper /usr/local/bin/
# The program, the C library that it is linked with, and the authorities that hooks trust.
RUN e2e/image/files.sh /usr/local/bin/gamekeeper /image

# Nothing else is in it: no shell, no package manager, nothing that could be written to.
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
# SIGTERM ends what is in progress, gives the lease back, and exits with 0.
STOPSIGNAL SIGTERM
ENTRYPOINT ["/gamekeeper"]
CMD ["run"]

# The operator's image: docker build --tag REGISTRY/gamekeeper:0.1.0 .
# (or buildah build; any builder that knows cache mounts).

FROM docker.io/library/rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
# What the dependencies compile to outlives this layer in the cache mounts.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package gamekeeper --bin gamekeeper \
    && cp target/release/gamekeeper /usr/local/bin/
# The program, the C library that it is linked with, and the authorities that hooks trust.
RUN mkdir /image \
    && cd /image \
    && ldd /usr/local/bin/gamekeeper | grep -o '/[^ ]*' | xargs -I{} cp --parents --dereference {} . \
    && cp --parents --dereference /etc/ssl/certs/ca-certificates.crt . \
    && cp /usr/local/bin/gamekeeper .

# Nothing else is in it: no shell, no package manager, nothing that could be written to.
FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="gamekeeper" \
      org.opencontainers.image.description="Runs game servers on Kubernetes without ever killing a match" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /image /
USER 65532:65532
EXPOSE 8080
# SIGTERM ends what is under way, gives the lease back, and exits with 0.
STOPSIGNAL SIGTERM
ENTRYPOINT ["/gamekeeper"]
CMD ["run"]

# The image in which OS images are built: the program with buildah.
#
#   buildah bud --file Containerfile.builder --build-arg MCO=localhost/mco:0.1.0 --tag localhost/mco-builder:0.1.0
ARG MCO=localhost/mco:0.1.0
FROM ${MCO} AS mco
FROM docker.io/library/debian:bookworm-slim
RUN apt-get update && \
    apt-get install -y --no-install-recommends buildah ca-certificates uidmap && \
    rm -rf /var/lib/apt/lists/* && \
    mkdir -p /home/build/.local/share/containers
COPY --from=mco /usr/bin/mco /usr/bin/mco
ENTRYPOINT ["/usr/bin/mco"]

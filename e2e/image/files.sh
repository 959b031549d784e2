#!/bin/sh
# files.sh PROGRAM FOLDER: puts what the image is made of into a folder: the program, the C library that
# it is linked with, and the authorities that hooks trust.
set -eu
program=$1 folder=$2
mkdir -p "$folder"
cp "$program" "$folder/gamekeeper"
cd "$folder"
ldd gamekeeper | grep -o '/[^ ]*' | xargs -I{} cp --parents --dereference {} .
cp --parents --dereference /etc/ssl/certs/ca-certificates.crt .

#!/bin/sh
# files.sh PROGRAM FOLDER: copies the files of an image into a folder: the program, the libraries that it is linked
# against, and the CA certificates that hooks trust.
set -eu
program=$1 folder=$2
mkdir -p "$folder"
cp "$program" "$folder/"
cd "$folder"
ldd "$(basename "$program")" | grep -o '/[^ ]*' | xargs -I{} cp --parents --dereference {} .
cp --parents --dereference /etc/ssl/certs/ca-certificates.crt .

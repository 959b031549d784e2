// argo-cd-redis is the cache that Argo CD requires: a Redis server in memory, as `argocd --core` starts it itself.
// usage: argo-cd-redis PORT
package main

import (
	"log"
	"os"

	"github.com/alicebob/miniredis/v2"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: argo-cd-redis PORT")
	}
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr("127.0.0.1:" + os.Args[1]); err != nil {
		log.Fatal(err)
	}
	select {}
}

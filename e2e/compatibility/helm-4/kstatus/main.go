// Command kstatus reads an object as JSON and prints its status as Flux, Helm and kpt compute it: InProgress, Failed,
// Current or Terminating, and a message.
package main

import (
	"fmt"
	"io"
	"log"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		log.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(text); err != nil {
		log.Fatal(err)
	}
	result, err := status.Compute(object)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %s\n", result.Status, result.Message)
}

//go:build !standard

package main

import (
	"encoding/hex"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// kinds has all kinds of the API, and PartialObjectMetadata.
var kinds = func() *runtime.Scheme {
	kinds := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(kinds))
	utilruntime.Must(apiextensionsv1.AddToScheme(kinds))
	utilruntime.Must(metav1.AddMetaToScheme(kinds))
	return kinds
}()

// fromJSON decodes objects as clients do.
var fromJSON = serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, kinds, kinds, serializer.SerializerOptions{})

// message is an object that has a form in protobuf.
type message interface {
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

// readObject reads a group version, a kind, and an object in protobuf without its envelope. It answers the object in protobuf again.
func readObject(text string) (any, error) {
	apiVersion, rest := first(text)
	kind, encoded := first(rest)
	object, err := kinds.New(schema.FromAPIVersionAndKind(apiVersion, kind))
	if err != nil {
		return nil, err
	}
	read, hasForm := object.(message)
	if !hasForm {
		return nil, fmt.Errorf("%T has no form in protobuf", object)
	}
	if err := read.Unmarshal([]byte(encoded)); err != nil {
		return nil, err
	}
	return written(read)
}

// readObjectJSON reads an object in JSON. It answers the object in protobuf, and its kind.
func readObjectJSON(text string) (any, error) {
	object, kind, err := fromJSON.Decode([]byte(text), nil, nil)
	if err != nil {
		return nil, err
	}
	read, hasForm := object.(message)
	if !hasForm {
		return nil, errors.New("the kind has no form in protobuf")
	}
	answer, err := written(read)
	if err != nil {
		return nil, err
	}
	answer["apiVersion"], answer["kind"] = kind.GroupVersion().String(), kind.Kind
	return answer, nil
}

func written(object message) (map[string]any, error) {
	encoded, err := object.Marshal()
	if err != nil {
		return nil, err
	}
	return map[string]any{"object": hex.EncodeToString(encoded)}, nil
}

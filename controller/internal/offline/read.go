package offline

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Objects is what manifests hold. Objects of one kind and name appear once: the last counts, as with kubectl apply.
type Objects struct {
	services map[string]*corev1.Service
	pods     map[string]*corev1.Pod
	nodes    map[string]*corev1.Node
	slices   map[string]*discoveryv1.EndpointSlice
	// endpoints objects count for Services without a selector and without slices.
	endpoints map[string]*corev1.Endpoints
}

// Read reads manifests. Errors name the document (counted from 1), the item of a list, the object and the field.
func Read(r io.Reader) (*Objects, error) {
	o := &Objects{
		services: map[string]*corev1.Service{}, pods: map[string]*corev1.Pod{}, nodes: map[string]*corev1.Node{},
		slices: map[string]*discoveryv1.EndpointSlice{}, endpoints: map[string]*corev1.Endpoints{},
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(r))
	for n := 1; ; n++ {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return o, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read document %d: %w", n, err)
		}
		doc, err := yaml.YAMLToJSONStrict(text)
		if err != nil {
			return nil, fmt.Errorf("document %d: %s", n, strings.Join(strings.Fields(err.Error()), " ")) // one line of several
		}
		if string(doc) == "null" {
			continue
		}
		if err := o.add(doc); err != nil {
			return nil, fmt.Errorf("document %d%w", n, err)
		}
	}
}

// add takes one object or list. Its error begins with what follows the document's number.
func (o *Objects) add(doc []byte) error {
	var head struct {
		metav1.PartialObjectMetadata `json:",inline"`

		Items []json.RawMessage `json:"items"`
	}
	if !bytes.HasPrefix(doc, []byte("{")) {
		return errors.New(": is no object: want Kubernetes objects, such as kubectl get -o yaml prints")
	}
	if err := json.Unmarshal(doc, &head); err != nil {
		return fmt.Errorf(": %w", describe(err))
	}
	if head.Kind == "" {
		return errors.New(": kind: is empty: want a Kubernetes object, such as kubectl get -o yaml prints")
	}
	if strings.HasSuffix(head.Kind, "List") {
		for i, item := range head.Items {
			if err := o.add(item); err != nil {
				return fmt.Errorf(", item %d%w", i+1, err)
			}
		}
		return nil
	}
	if err := o.addObject(head.APIVersion, head.Kind, doc); err != nil {
		return fmt.Errorf(" (%s %s): %w", head.Kind, key(&head.ObjectMeta), err)
	}
	return nil
}

// addObject decodes an object of a kind that counts.
func (o *Objects) addObject(apiVersion, kind string, doc []byte) error {
	switch apiVersion + " " + kind {
	case "v1 Service":
		return decode(doc, o.services, func(s *corev1.Service) error { return completeService(s) })
	case "v1 Pod":
		return decode(doc, o.pods, func(p *corev1.Pod) error { return completePod(p) })
	case "v1 Node":
		return decode(doc, o.nodes, func(*corev1.Node) error { return nil })
	case "v1 Endpoints":
		return decode(doc, o.endpoints, func(e *corev1.Endpoints) error { return completeMeta(&e.ObjectMeta) })
	case "discovery.k8s.io/v1 EndpointSlice":
		return decode(doc, o.slices, func(s *discoveryv1.EndpointSlice) error { return completeMeta(&s.ObjectMeta) })
	}
	return nil
}

// object is a pointer to one of the types that are read.
type object[T any] interface {
	*T
	metav1.Object
}

func decode[T any, P object[T]](doc []byte, into map[string]P, complete func(P) error) error {
	p := P(new(T))
	if err := json.Unmarshal(doc, p); err != nil {
		return describe(err)
	}
	if err := complete(p); err != nil {
		return err
	}
	into[key(p)] = p
	return nil
}

// describe names the field of a decoding error by its path alone.
func describe(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("%s: is a %s: want a %s", wrong.Field, wrong.Value, wrong.Type)
	}
	return err
}

func key(o metav1.Object) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

package listwatch

import (
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// codec writes objects of one group and version in one media type.
type codec struct {
	// list and stream are the content types of a list and of a watch.
	list, stream string
	encoder      runtime.Encoder
	info         runtime.SerializerInfo
}

// codecFor chooses protobuf where the client takes it, else JSON.
func codecFor(accept string, gv schema.GroupVersion) (codec, error) {
	wanted := runtime.ContentTypeJSON
	if media(accept, func(name string) bool { return name == runtime.ContentTypeProtobuf }) {
		wanted = runtime.ContentTypeProtobuf
	}
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), wanted)
	if !ok || info.StreamSerializer == nil {
		return codec{}, fmt.Errorf("media type %q: want %s or %s", accept, runtime.ContentTypeProtobuf, runtime.ContentTypeJSON)
	}
	c := codec{list: wanted, stream: wanted, info: info, encoder: scheme.Codecs.WithoutConversion().EncoderForVersion(info.Serializer, gv)}
	if wanted == runtime.ContentTypeProtobuf {
		c.stream += ";stream=watch"
	}
	return c, nil
}

// frames writes watch events.
type frames struct {
	codec
	to io.Writer
}

func (c codec) frames(w io.Writer) frames {
	return frames{c, c.info.StreamSerializer.NewFrameWriter(w)}
}

func (f frames) write(t watch.EventType, o runtime.Object) error {
	raw, err := runtime.Encode(f.encoder, o)
	if err != nil {
		return fmt.Errorf("encode object: %w", err)
	}
	e := &metav1.WatchEvent{Type: string(t), Object: runtime.RawExtension{Raw: raw}}
	if err := f.info.StreamSerializer.Encode(e, f.to); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	return nil
}

package reliable

import "encoding/json"

// A Codec turns typed values into payloads and back. It is used by typed enqueues and typed handlers only: an untyped
// payload is stored and handed over as it is, byte for byte. All producers and consumers of a kind must use the same
// codec; nothing stored names the one that was used. A Codec is used by many goroutines at once.
type Codec interface {
	// Marshal returns v's payload. The caller owns it.
	Marshal(v any) ([]byte, error)
	// Unmarshal decodes data into v, a non-nil pointer. It must not keep data. An error says that data is no payload
	// of v's type, and buries the job; a panic counts as a panic of the handler.
	Unmarshal(data []byte, v any) error
	// Name names the format in errors, as in "json".
	Name() string
}

// JSON is the default [Codec]: encoding/json as it is. Package reliable/msgpackcodec has one for MessagePack. What JSON
// means for payloads:
//
//   - Decoded into any, every number becomes a float64: whole numbers beyond 2⁵³ change. Use an integer type,
//     [json.Number] or a string for them.
//   - Strings that are not valid UTF-8 are changed when encoded. Use []byte, which becomes base64.
//   - Fields that the type does not have are ignored, fields that the payload does not have keep their zero value: a
//     type may gain optional fields. A change that needs more is a new kind.
//   - An empty payload is an error; null leaves the value as it was.
var JSON Codec = jsonCodec{}

type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error) { return json.Marshal(v) }

func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

func (jsonCodec) Name() string { return "json" }

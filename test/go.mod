module github.com/fairlead/fairlead/test

go 1.26.0

require github.com/fairlead/fairlead/proto v0.0.0

require (
	github.com/fairlead/fairlead/agent v0.0.0
	github.com/fairlead/fairlead/controller v0.0.0
	github.com/google/go-cmp v0.7.0 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/grpc v1.85.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	k8s.io/api v0.37.2 // indirect
	k8s.io/apimachinery v0.37.2 // indirect
	k8s.io/client-go v0.37.2 // indirect
	sigs.k8s.io/yaml v1.6.0 // indirect
)

replace github.com/fairlead/fairlead/proto => ../proto

replace github.com/fairlead/fairlead/controller => ../controller

replace github.com/fairlead/fairlead/agent => ../agent

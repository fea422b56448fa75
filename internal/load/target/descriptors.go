package target

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	_ "google.golang.org/grpc/health/grpc_health_v1" // for methodIn
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// findMethod returns the description of the method, from the file that the user gave or else from
// the server. Of a server without reflection, the services that are linked into this program can
// be called: gRPC's health service, and in weir those of the daemon.
func (g *grpcDriver) findMethod(ctx context.Context) (protoreflect.MethodDescriptor, error) {
	var files *protoregistry.Files
	var err error
	if g.plan.Descriptors != "" {
		files, err = readDescriptors(g.plan.Descriptors)
	} else {
		service, _, _ := strings.Cut(g.plan.Method, "/")
		files, err = askDescriptors(ctx, g.conns[0], service)
	}
	if errors.Is(err, errNoReflection) {
		files = protoregistry.GlobalFiles
	} else if err != nil {
		return nil, err
	}
	if m := methodIn(files, g.plan.Method); m != nil {
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("there is no method %s; %s", g.plan.Method, listMethods(files))
}

// methodIn returns a method, such as "grpc.health.v1.Health/Check"; nil if there is none.
func methodIn(files *protoregistry.Files, name string) protoreflect.MethodDescriptor {
	service, method, _ := strings.Cut(name, "/")
	found, err := files.FindDescriptorByName(protoreflect.FullName(service))
	if s, ok := found.(protoreflect.ServiceDescriptor); err == nil && ok {
		return s.Methods().ByName(protoreflect.Name(method))
	}
	return nil
}

// readDescriptors reads the file of a FileDescriptorSet.
func readDescriptors(path string) (*protoregistry.Files, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the Descriptors: %w", err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(data, &set); err != nil || len(set.File) == 0 {
		return nil, fmt.Errorf("the Descriptors %s are no FileDescriptorSet; protoc --include_imports --descriptor_set_out writes one", path)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return nil, fmt.Errorf("the Descriptors %s: %w", path, err)
	}
	return files, nil
}

// newFiles links what a server sent.
func newFiles(byName map[string]*descriptorpb.FileDescriptorProto) (*protoregistry.Files, error) {
	var set descriptorpb.FileDescriptorSet
	for _, file := range byName {
		set.File = append(set.File, file)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return nil, errors.New("the descriptors that the server sent do not fit together: " + err.Error())
	}
	return files, nil
}

// maxListed is how many methods an error shows.
const maxListed = 20

// listMethods says what could be called.
func listMethods(files *protoregistry.Files) string {
	var names []string
	files.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			names = append(names, methodsOf(f.Services().Get(i))...)
		}
		return true
	})
	slices.Sort(names)
	rest := ""
	if more := len(names) - maxListed; more > 0 {
		names, rest = names[:maxListed], fmt.Sprintf(" and %d more", more)
	}
	if len(names) == 0 {
		return "there are none"
	}
	return "there are " + strings.Join(names, ", ") + rest
}

// methodsOf returns the unary methods of a service.
func methodsOf(s protoreflect.ServiceDescriptor) (names []string) {
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		if !m.IsStreamingClient() && !m.IsStreamingServer() {
			names = append(names, fmt.Sprintf("%s/%s", s.FullName(), m.Name()))
		}
	}
	return names
}

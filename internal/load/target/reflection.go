package target

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	reflectpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// The versions of server reflection. Their messages are the same on the wire.
var reflectionMethods = []string{
	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
}

// maxFiles is how many files a server may describe itself with.
const maxFiles = 1000

var errNoReflection = errors.New("the server does not tell its methods (no reflection); give the file of a FileDescriptorSet as Descriptors")

// askDescriptors requests the descriptors of a service. If there is no such service, it
// requests all others, so that the error can list them.
func askDescriptors(ctx context.Context, conn *grpc.ClientConn, service string) (*protoregistry.Files, error) {
	for _, method := range reflectionMethods {
		files, err := askVersion(ctx, conn, method, service)
		if status.Code(err) == codes.Unimplemented {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the methods of the server (reflection): %w", err)
		}
		return files, nil
	}
	return nil, errNoReflection
}

func askVersion(ctx context.Context, conn *grpc.ClientConn, method, service string) (*protoregistry.Files, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return nil, err
	}
	r := &reflection{stream: stream, files: map[string]*descriptorpb.FileDescriptorProto{}}
	err = r.fetchService(service)
	if errors.Is(err, errNotKnown) {
		err = r.fetchAll()
	}
	if err != nil {
		return nil, err
	}
	return newFiles(r.files)
}

// reflection is a conversation with a server about its services.
type reflection struct {
	stream grpc.ClientStream
	files  map[string]*descriptorpb.FileDescriptorProto // by name
}

// errNotKnown is what ask returns where the server knows no such thing.
var errNotKnown = errors.New("the server does not know it")

// fetchService fetches the file of a service, and all that it imports.
func (r *reflection) fetchService(name string) error {
	return r.fetch(&reflectpb.ServerReflectionRequest{
		MessageRequest: &reflectpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name},
	})
}

// fetchAll fetches the files of all services that the server can describe.
func (r *reflection) fetchAll() error {
	answer, err := r.ask(&reflectpb.ServerReflectionRequest{
		MessageRequest: &reflectpb.ServerReflectionRequest_ListServices{},
	})
	if err != nil {
		return err
	}
	for _, s := range answer.GetListServicesResponse().GetService() {
		if err := r.fetchService(s.GetName()); err != nil && !errors.Is(err, errNotKnown) {
			return err
		}
	}
	return nil
}

// fetch requests files, and for those that they import. Servers may send imports
// along with a file, or not.
func (r *reflection) fetch(request *reflectpb.ServerReflectionRequest) error {
	if err := r.fetchFiles(request); err != nil {
		return err
	}
	for {
		name, missing := r.missing()
		switch {
		case !missing:
			return nil
		case len(r.files) > maxFiles:
			return fmt.Errorf("the server describes itself with more than %d files", maxFiles)
		}
		err := r.fetchFiles(&reflectpb.ServerReflectionRequest{
			MessageRequest: &reflectpb.ServerReflectionRequest_FileByFilename{FileByFilename: name},
		})
		if err == nil && r.files[name] == nil {
			err = errors.New("the server sent something else")
		}
		if err != nil { // not wrapped: what is not known is not the service
			return fmt.Errorf("%.100q, which another file imports, did not come: %v", name, err)
		}
	}
}

func (r *reflection) fetchFiles(request *reflectpb.ServerReflectionRequest) error {
	answer, err := r.ask(request)
	if err != nil {
		return err
	}
	for _, raw := range answer.GetFileDescriptorResponse().GetFileDescriptorProto() {
		var file descriptorpb.FileDescriptorProto
		if err := proto.Unmarshal(raw, &file); err != nil {
			return fmt.Errorf("a descriptor cannot be read: %w", err)
		}
		r.files[file.GetName()] = &file
	}
	return nil
}

// missing returns the name of a file that others import.
func (r *reflection) missing() (string, bool) {
	for _, file := range r.files {
		for _, name := range file.GetDependency() {
			if r.files[name] == nil {
				return name, true
			}
		}
	}
	return "", false
}

// ask sends one request and waits for its answer.
func (r *reflection) ask(request *reflectpb.ServerReflectionRequest) (*reflectpb.ServerReflectionResponse, error) {
	// An error of SendMsg is io.EOF; RecvMsg has the reason.
	_ = r.stream.SendMsg(request)
	var answer reflectpb.ServerReflectionResponse
	if err := r.stream.RecvMsg(&answer); err != nil {
		return nil, err
	}
	e := answer.GetErrorResponse()
	switch {
	case e == nil:
		return &answer, nil
	case codes.Code(e.GetErrorCode()) == codes.NotFound:
		return nil, errNotKnown
	}
	return nil, fmt.Errorf("%v: %.200q", codes.Code(e.GetErrorCode()), e.GetErrorMessage())
}

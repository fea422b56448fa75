// Package config reads the daemon's configuration.
//
//	c, err := config.Load("weir.yaml", os.Environ())
//	if err != nil {
//		return err // every problem, each with its line, its field and what to do
//	}
//	srv := c.Server() // plus a limiter, made from c.Store
//
// There is one file, in YAML, and it is strict: an unknown name, a number in quotes, a rate
// of 0 or a repeated key is a problem, and a configuration with a problem is rejected. All
// problems are reported together. Every section may be left out, and so may the file.
//
// # From text to types
//
// The text becomes a tree of nodes, of which each knows where it comes from. The
// environment and the command line put nodes of their own into that tree. Then it is
// decoded into File, a struct whose fields are those of the file: what is missing is
// added to the tree as a default, what is unknown is a problem, and ${NAME} is replaced.
// The tree then has the effective configuration: Print writes it, and a problem that is
// found later, by package ruleset for example, is mapped to its line by its path. The last
// step checks the fields against each other and makes the types of other packages.
//
// Each field of File is a section with a file of its own here, for example tracing.go: a struct, and
// check, which makes the daemon's types of it. A package that finds something wrong with its
// configuration says by fielderr.Error in which field, and the checker finds the line.
//
// The structs are the only description of the file. The schema for editors and
// docs/config.md are made from them and their comments, and tests fail when they differ.
//
// # Secrets
//
// Tokens and passwords should not be in the file. A field called token or password takes
// ${NAME}, an environment variable, and has a counterpart token_file or password_file
// for a file, whose path is relative to the configuration's directory. ${NAME} must be the
// whole value, and is replaced only in secrets, addresses and paths of files.
//
// Nothing here prints a secret: not Print, not a problem's message, not the line of the
// file that is shown with it. That holds for literal tokens, for values of misspelt fields
// beside them, and as far as can be guessed for files that are not YAML at all.
//
// # The environment
//
// Each field can be set from the environment by one rule. WEIR__STORE__KIND=redis sets
// store.kind: WEIR and the steps of the path in capitals, two underscores between them.
// Places in lists are numbers. Keys of mappings match in any case, with _ for - and for a
// point; if several match, that is a problem. A single value is taken as it is, without
// quotes; a whole list or mapping is YAML. A listener takes an address alone, too, and keeps
// its TLS. A variable that begins with WEIR__ and names no field is a problem, and one with
// single underscores, such as those that Kubernetes sets for a service called weir, is
// ignored.
//
// # Limits
//
// A file has at most 1 MiB, 32 levels and one document. Anchors, aliases, merge keys and
// tags are refused, because with them a short file can expand to a large tree.
package config

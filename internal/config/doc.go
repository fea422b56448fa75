// Package config reads the daemon's configuration.
//
//	c, err := config.Load("weir.yaml", os.Environ())
//	if err != nil {
//		return err // every problem, each with its line, its field and what to do
//	}
//	srv := c.Server() // plus a limiter, made from c.Store
//
// There is one file, in YAML, and it is strict: a name that is not known, a number in
// quotes, a rate of 0, a key that is there twice are problems, and a configuration with a
// problem is none. All problems are told at once, because whoever mends a file wants to do
// so once. Every section may be left out, and so may the file.
//
// # From text to types
//
// The text becomes a tree of nodes, of which each knows where it comes from. The
// environment and the command line put nodes of their own into that tree. Then it is
// decoded into File, a struct whose fields are those of the file: what is missing is
// added to the tree as a default, what is unknown is a problem, and ${NAME} is replaced.
// What was the file's tree is now what is in force, so Print only has to write it down,
// and a problem that is found later, by package guard for example, is put back to its line
// by its path. The last step looks at the whole and makes the types of other packages.
//
// The structs are the only description of the file. The schema for editors and
// docs/config.md are made from them and their comments, and tests fail when they differ.
//
// # Secrets
//
// Tokens and passwords are better not in the file. A field called token or password takes
// ${NAME}, a variable of the environment, and has a sister token_file or password_file
// for a file, whose path is relative to the configuration's directory. ${NAME} is the whole
// value or nothing, and only in secrets, addresses and paths of files: a file with
// variables everywhere is a program.
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
// somebody else's.
//
// # Limits
//
// A file has at most 1 MiB, 32 levels and one document. Anchors, aliases, merge keys and
// tags are refused: with a few of them a short file is a large one.
package config

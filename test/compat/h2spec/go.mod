module isthmus.dev/test/compat/h2spec

go 1.26.2

require (
	github.com/summerwind/h2spec v2.2.1+incompatible
	golang.org/x/net v0.57.0
)

require (
	github.com/fatih/color v1.19.0 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.40.0 // indirect
)

module isthmus.dev/test/compat/path

go 1.26.2

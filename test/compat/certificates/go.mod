module isthmus.dev/test/compat/certificates

go 1.26.2

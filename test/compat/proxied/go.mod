module isthmus.dev/test/compat/proxied

go 1.26.2

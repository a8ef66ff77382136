module isthmus.test/programs

go 1.24

// Loaded into the plane's programs, so that memory is measured without what waits to be collected.
declare const gc: () => void;

process.on('SIGUSR2', () => gc());

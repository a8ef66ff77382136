// Loaded into the plane's programs, so that memory can be measured without garbage.
declare const gc: () => void;

process.on('SIGUSR2', () => gc());

// Loaded into the plane's programs, so that memory can be measured without garbage. Not TypeScript: what strips its types would stay in each
// program's memory, and count as its own.
process.on('SIGUSR2', () => globalThis.gc());

/** Of a 64-bit ELF header and its program headers, in bytes from their start (elf(5)). */
const HEADER = {
  machine: 18,
  programs: 32,
  sections: 40,
  programSize: 54,
  programCount: 56,
  sectionCount: 60,
  nameSection: 62,
};
const PROGRAM = { type: 0, offset: 8, address: 16, fileSize: 32 };
const [LOADED, DYNAMIC, INTERPRETER] = [1, 2, 3];
/** Of the dynamic section: entries of two words, a tag and a value. */
const ENTRY_SIZE = 16;
const [NEEDED, STRINGS] = [1n, 5n];
const MAGIC = Buffer.from('\x7fELF');
const [CLASS_64, LITTLE_ENDIAN] = [2, 1];

/**
 * Returns which processor an ELF file is for (a number), and what the loader needs to start it: the names of shared libraries, and the path
 * of the loader itself in a program. ldd(1) says the same, but runs the file, and so knows only this machine's processor.
 * @param {Buffer} file
 */
export function linked(file) {
  const segments = segmentsOf(file);
  const text = (at) => file.toString('latin1', at, file.indexOf(0, at));
  const interpreter = segments.find(({ type }) => type === INTERPRETER);
  const dynamic = segments.find(({ type }) => type === DYNAMIC) ?? { offset: 0, fileSize: 0 };
  const entries = Array.from({ length: dynamic.fileSize / ENTRY_SIZE }, (_, index) => {
    const at = dynamic.offset + index * ENTRY_SIZE;
    return { tag: file.readBigInt64LE(at), value: Number(file.readBigUInt64LE(at + 8)) };
  });
  const strings = entries.find(({ tag }) => tag === STRINGS)?.value ?? 0;
  const loaded = segments.find(
    (each) => each.type === LOADED && strings - each.address < each.fileSize && strings >= each.address,
  );
  const names = entries
    .filter(({ tag }) => tag === NEEDED)
    .map(({ value }) => text(strings - loaded.address + loaded.offset + value));
  return {
    machine: file.readUInt16LE(HEADER.machine),
    libraries: names,
    loader: interpreter && text(interpreter.offset),
  };
}

/**
 * Returns a program for Linux without what only linkers and debuggers read: symbols, and its table of sections. This is all that
 * follows the segments that are loaded. Nothing else changes, on any processor; strip(1) would have to be installed first.
 * @param {Buffer} program
 */
export function stripped(program) {
  const { programs, size, count } = tableOf(program);
  const ends = segmentsOf(program).map(({ offset, fileSize }) => offset + fileSize);
  const rest = Buffer.from(program.subarray(0, Math.max(programs + count * size, ...ends)));
  rest.writeBigUInt64LE(0n, HEADER.sections);
  rest.writeUInt16LE(0, HEADER.sectionCount);
  rest.writeUInt16LE(0, HEADER.nameSection);
  return rest;
}

/** Returns where the program headers are. */
function tableOf(file) {
  if (!file.subarray(0, 4).equals(MAGIC) || file[4] !== CLASS_64 || file[5] !== LITTLE_ENDIAN)
    throw new Error('the program is no 64-bit little-endian ELF file');
  const programs = Number(file.readBigUInt64LE(HEADER.programs));
  return { programs, size: file.readUInt16LE(HEADER.programSize), count: file.readUInt16LE(HEADER.programCount) };
}

function segmentsOf(file) {
  const { programs, size, count } = tableOf(file);
  return Array.from({ length: count }, (_, index) => {
    const entry = programs + index * size;
    const word = (at) => Number(file.readBigUInt64LE(entry + at));
    const [offset, address, fileSize] = [word(PROGRAM.offset), word(PROGRAM.address), word(PROGRAM.fileSize)];
    return { type: file.readUInt32LE(entry + PROGRAM.type), offset, address, fileSize };
  });
}

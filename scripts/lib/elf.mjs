/** Of a 64-bit ELF header and its program headers, in bytes from their start (elf(5)). */
const HEADER = {
  programs: 32,
  sections: 40,
  programSize: 54,
  programCount: 56,
  sectionCount: 60,
  nameSection: 62,
};
const PROGRAM = { offset: 8, fileSize: 32 };
const MAGIC = Buffer.from('\x7fELF');
const [CLASS_64, LITTLE_ENDIAN] = [2, 1];

/**
 * Returns a program for Linux without what only linkers and debuggers read: symbols, and its table of sections. This is all that
 * follows the segments that are loaded. Nothing else changes, on any processor; strip(1) would have to be installed first.
 * @param {Buffer} program
 */
export function stripped(program) {
  if (!program.subarray(0, 4).equals(MAGIC) || program[4] !== CLASS_64 || program[5] !== LITTLE_ENDIAN)
    throw new Error('the program is no 64-bit little-endian ELF file');
  const programs = Number(program.readBigUInt64LE(HEADER.programs));
  const size = program.readUInt16LE(HEADER.programSize);
  const count = program.readUInt16LE(HEADER.programCount);
  const ends = Array.from({ length: count }, (_, index) => {
    const word = (at) => Number(program.readBigUInt64LE(programs + index * size + at));
    return word(PROGRAM.offset) + word(PROGRAM.fileSize);
  });
  const rest = Buffer.from(program.subarray(0, Math.max(programs + count * size, ...ends)));
  rest.writeBigUInt64LE(0n, HEADER.sections);
  rest.writeUInt16LE(0, HEADER.sectionCount);
  rest.writeUInt16LE(0, HEADER.nameSection);
  return rest;
}

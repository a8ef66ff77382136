export interface BinaryHeader {
  readonly version?: number;
  /** 0 is LOCAL, 1 is PROXY. */
  readonly command?: number;
  /** Family and transport. Default: TCP over the source's family. */
  readonly transport?: number;
  /** The source's address in hexadecimal, and its port. */
  readonly source?: readonly [address: string, port: number];
  /** What follows the addresses. */
  readonly fields?: Buffer;
}

/** A header of version 2 of the PROXY protocol. */
export function binaryHeader({ version = 2, command = 1, transport, source, fields }: BinaryHeader): Buffer {
  const address = Buffer.from(source?.[0] ?? '', 'hex');
  const ports = Buffer.alloc(source ? 4 : 0);
  if (source) ports.writeUInt16BE(source[1]);
  const rest = Buffer.concat([address, Buffer.alloc(address.length), ports, fields ?? Buffer.alloc(0)]);
  const fixed = Buffer.from('\r\n\r\n\0\r\nQUIT\n????', 'latin1');
  fixed.writeUInt8((version << 4) | command, 12);
  fixed.writeUInt8(transport ?? (address.length === 16 ? 0x21 : 0x11), 13);
  fixed.writeUInt16BE(rest.length, 14);
  return Buffer.concat([fixed, rest]);
}

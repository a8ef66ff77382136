/** Names a gateway's process in the head of its control stream. */
export const GATEWAY_FIELD = 'isthmus-gateway';

/** The name of a process: 16 hexadecimal digits. */
export function isInstance(text: string): boolean {
  return /^[0-9a-f]{16}$/.test(text);
}

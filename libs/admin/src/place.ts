/** A name that an admin port's certificate may have instead of its address, because pods' addresses change. */
export const ADMIN_SERVER_NAME = 'isthmus-admin';

/** Returns the path in `unix:/path`, or undefined for any other address. */
export function socketPathOf(address: string): string | undefined {
  return /^unix:(?:\/\/(?=\/))?(\/.+)$/.exec(address)?.[1];
}

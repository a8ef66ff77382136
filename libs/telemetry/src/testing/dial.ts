import type { DialRequest } from '@isthmus/tunnel';

/** A dial without a caller, which never expires and is never aborted. */
export const request: DialRequest = {
  id: '00000000000000d1',
  tenant: 'default',
  destination: { host: '10.0.0.1', port: 443 },
  deadline: Number.POSITIVE_INFINITY,
  signal: new AbortController().signal,
};

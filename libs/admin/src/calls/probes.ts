import type { adminApi } from '@isthmus/proto/admin';
import type { AdminBackend } from '../backend.ts';
import { invalid } from './refusals.ts';

/** `address:port`, as a socket tells it. */
const REMOTE = /^[\da-fA-F.:%\w]{2,60}:\d{1,5}$/;

export function probesRpc({ refusals }: AdminBackend): Pick<adminApi.AdminServiceImplementation, 'expectProbe'> {
  return {
    async expectProbe({ remote }) {
      if (!REMOTE.test(remote)) throw invalid('remote: want the address and port that the probe comes from');
      refusals.expect(remote);
      return {};
    },
  };
}

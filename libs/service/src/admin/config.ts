import { adminApi } from '@isthmus/proto';
import type { AdminBackend } from '../admin-backend.ts';
import type { FlagInForce } from '../flags/in-force.ts';

const { Source } = { Source: adminApi.Flag_Source };

const SOURCES = {
  default: Source.SOURCE_DEFAULT,
  given: Source.SOURCE_GIVEN,
  derived: Source.SOURCE_DERIVED,
} as const satisfies Record<FlagInForce['source'], adminApi.Flag_Source>;

type ConfigRpc = Pick<adminApi.AdminServiceImplementation, 'getConfig'>;

export function configRpc({ identity, flags }: AdminBackend): ConfigRpc {
  return {
    async getConfig() {
      return { program: identity.program, flags: flags.map((flag) => ({ ...flag, source: SOURCES[flag.source] })) };
    },
  };
}

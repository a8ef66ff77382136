import type { FlagInForce } from '@isthmus/flags';
import { adminApi } from '@isthmus/proto/admin';
import type { AdminBackend } from '../backend.ts';

const { SOURCE_DEFAULT, SOURCE_GIVEN, SOURCE_DERIVED } = adminApi.Flag_Source;

const SOURCES = {
  default: SOURCE_DEFAULT,
  given: SOURCE_GIVEN,
  derived: SOURCE_DERIVED,
} as const satisfies Record<FlagInForce['source'], adminApi.Flag_Source>;

type ConfigRpc = Pick<adminApi.AdminServiceImplementation, 'getConfig'>;

export function configRpc({ identity, flags }: AdminBackend): ConfigRpc {
  return {
    async getConfig() {
      return { program: identity.program, flags: flags.map((flag) => ({ ...flag, source: SOURCES[flag.source] })) };
    },
  };
}

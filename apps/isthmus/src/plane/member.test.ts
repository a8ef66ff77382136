import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { adminApi } from '@isthmus/proto/admin';
import { blindness, type Greeting, membersOf } from './member.ts';

const { ListMembersResponse } = adminApi;
const { ROLE_GATEWAY, ROLE_HUB } = adminApi.Role;

const named = (memberId: string, adminAddress: string, host: string, self = false, sinceMs = 0) => {
  return { memberId, adminAddress, host, roles: [ROLE_GATEWAY, ROLE_HUB], self, sinceMs };
};

function greeting(address: string, memberId: string, members: ReturnType<typeof named>[], membersError = ''): Greeting {
  return {
    address,
    self: { id: memberId, roles: ['gateway'], address: '', version: '', zone: '' },
    list: ListMembersResponse.fromPartial({ members, membersError }),
  };
}

describe('the members of a plane', () => {
  it('are asked where they answered, otherwise at the address that others give', () => {
    const members = [
      named('m1', '10.0.0.1:8095', 'a', true),
      named('m10', '10.0.0.9:8095', 'b'),
      named('m2', '10.0.0.2:8095', 'c'),
    ];
    const found = membersOf([greeting('localhost:9000', 'm1', members)]);
    assert.deepEqual(
      [...found.values()].map(({ id, address, roles }) => [id, address, roles.join('+')]),
      [
        ['m1', 'localhost:9000', 'gateway'],
        ['m2', '10.0.0.2:8095', 'gateway+hub'],
        ['m10', '10.0.0.9:8095', 'gateway+hub'],
      ],
    );
  });

  it('are not all known while the registry is down, unless someone knows them', () => {
    const blind = greeting('a:1', 'm1', [], 'redis r:6379: connect ECONNREFUSED');
    assert.match(
      blindness([blind])[0]?.reason ?? '',
      /^cannot get the list of other members \(redis r:6379: .*\): name the others with --address$/,
    );
    assert.deepEqual(blindness([blind, greeting('b:1', 'm2', [])]), []);
  });
});

import { registryContract } from './contract.ts';
import { memoryRegistry } from './memory.ts';

registryContract('memory', async () => {
  const registry = memoryRegistry();
  return { connect: () => registry, close: () => registry.close() };
});

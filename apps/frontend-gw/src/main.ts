import { frontendGateway } from '@isthmus/flags';
import { runServer } from '@isthmus/plane';
import { gatewayRole } from './from-flags.ts';

await runServer(frontendGateway, { gateway: gatewayRole });

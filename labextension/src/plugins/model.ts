/** Provides the model, and owns the settings. */
import { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { GpuShare } from '../model';
import { PLUGIN_ID } from '../settings';
import { IGpuShare } from '../tokens';

export const model: JupyterFrontEndPlugin<IGpuShare> = {
  id: PLUGIN_ID,
  description: 'The state of my GPU shares.',
  autoStart: true,
  provides: IGpuShare,
  activate: () => new GpuShare()
};

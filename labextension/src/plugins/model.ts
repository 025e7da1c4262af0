/** Provides the model, and owns the settings. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ISettingRegistry } from '@jupyterlab/settingregistry';

import { GpuShare } from '../model';
import { followSettings, PLUGIN_ID } from '../settings';
import { IGpuShare } from '../tokens';

export const model: JupyterFrontEndPlugin<IGpuShare> = {
  id: PLUGIN_ID,
  description: 'The state of my GPU shares.',
  autoStart: true,
  provides: IGpuShare,
  optional: [ISettingRegistry],
  activate: (_app: JupyterFrontEnd, registry: ISettingRegistry | null) => {
    const made = new GpuShare();
    const settings = followSettings(registry, () => made.setDefaultShare(settings().defaultShare));
    return made;
  }
};

/** Notifications about my kernels. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator } from '@jupyterlab/translation';

import { reportActions } from '../actionReporter';
import { COMMANDS } from '../commands';
import { explainKernelDeaths } from '../notebook/kernelDiedDialog';
import { cancelRequestsOfKilledKernels } from '../notebook/cancelRequests';
import { Restarts } from '../notebook/restarts';
import { notebooksOf } from '../notebooks';
import { Notifier } from '../notifier';
import { followSettings } from '../settings';
import { IGpuShare } from '../tokens';
import { bundle } from '../translation';

export const notifier: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpushare:notifier',
  description: 'Notifications about my kernels, and the reason in the dialog of a died kernel.',
  autoStart: true,
  requires: [IGpuShare],
  optional: [INotebookTracker, ISettingRegistry, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    gpushare: IGpuShare,
    notebooks: INotebookTracker | null,
    registry: ISettingRegistry | null,
    translator: ITranslator | null
  ) => {
    const trans = bundle(translator);
    const settings = followSettings(registry);
    const restarts = new Restarts(notebooks);
    reportActions(gpushare, trans);
    new Notifier({
      gpushare,
      isRestarted: kernelId => restarts.isRecent(kernelId),
      showPanel: () => void app.commands.execute(COMMANDS.show),
      isInSight: kernelId =>
        notebooks !== null && notebooksOf(notebooks, kernelId).some(panel => panel.isVisible),
      isWanted: kind => settings().notifications && settings().notificationKinds[kind] !== false,
      trans
    });
    if (notebooks !== null) {
      explainKernelDeaths(gpushare, notebooks, trans);
    }
  }
};

export const relaunch: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpushare:relaunch',
  description: 'Ends the cells that a killed kernel will never answer.',
  autoStart: true,
  requires: [IGpuShare],
  optional: [INotebookTracker], // some pages of Notebook 7 have none
  activate: (_app: JupyterFrontEnd, gpushare: IGpuShare, notebooks: INotebookTracker | null) => {
    if (notebooks !== null) {
      cancelRequestsOfKilledKernels(gpushare, notebooks);
    }
  }
};

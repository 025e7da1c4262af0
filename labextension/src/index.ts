import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';

const plugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpushare:plugin',
  autoStart: true,
  activate: (_app: JupyterFrontEnd) => undefined
};

export default plugin;

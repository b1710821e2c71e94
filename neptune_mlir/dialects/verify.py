def _t(op): return True
index=map_nest=map_region=reduce_nest=reduce_region=correct=correct_region=stream=stream_region=private=private_region=global_=global_region=_t

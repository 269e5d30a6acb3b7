/* Numbers of cuDNN 9's published enumerators, as far as plugin/cuda uses them. */
#ifndef WEFT_CUDA_DNN_H
#define WEFT_CUDA_DNN_H

enum { /* cudnnDataType_t */
    DNN_F32   = 0,
    DNN_INT32 = 4,
    DNN_BF16  = 9,
    DNN_BOOL  = 11
};

enum { /* cudnnBackendAttributeType_t */
    DNN_TYPE_HANDLE         = 0,
    DNN_TYPE_DATA_TYPE      = 1,
    DNN_TYPE_BOOL           = 2,
    DNN_TYPE_INT64          = 3,
    DNN_TYPE_FLOAT          = 4,
    DNN_TYPE_POINTER        = 6,
    DNN_TYPE_HEURISTIC      = 8,
    DNN_TYPE_KNOB           = 9,
    DNN_TYPE_POINTWISE_MODE = 14,
    DNN_TYPE_DESCRIPTOR     = 15,
    DNN_TYPE_REDUCTION      = 18,
    DNN_TYPE_CHAR           = 24
};

enum { /* cudnnBackendDescriptorType_t */
    DNN_POINTWISE           = 0,
    DNN_ENGINE              = 2,
    DNN_ENGINE_CONFIG       = 3,
    DNN_HEURISTIC           = 4,
    DNN_EXECUTION_PLAN      = 5,
    DNN_KNOB_CHOICE         = 7,
    DNN_OPERATION_POINTWISE = 13,
    DNN_OPERATION_GRAPH     = 15,
    DNN_VARIANT_PACK        = 16,
    DNN_TENSOR              = 17,
    DNN_MATMUL              = 18,
    DNN_OPERATION_MATMUL    = 19,
    DNN_REDUCTION           = 21,
    DNN_OPERATION_REDUCTION = 22,
    DNN_OPERATION_RESHAPE   = 31,
    DNN_DEVICE_PROPERTIES   = 38
};

enum { /* cudnnBackendAttributeName_t */
    DNN_POINTWISE_MODE             = 0,
    DNN_POINTWISE_PRECISION        = 1,
    DNN_POINTWISE_AXIS             = 9,
    DNN_HEURISTIC_MODE             = 200,
    DNN_HEURISTIC_GRAPH            = 201,
    DNN_HEURISTIC_RESULTS          = 202,
    DNN_HEURISTIC_DEVICE           = 204,
    DNN_CONFIG_ENGINE              = 300,
    DNN_CONFIG_KNOBS               = 302,
    DNN_PLAN_CONFIG                = 401,
    DNN_PLAN_WORKSPACE             = 402,
    DNN_KNOB_CHOICE_TYPE           = 600,
    DNN_KNOB_CHOICE_VALUE          = 601,
    DNN_OPERATION_POINTWISE_DESC   = 750,
    DNN_OPERATION_POINTWISE_X      = 751,
    DNN_OPERATION_POINTWISE_B      = 752,
    DNN_OPERATION_POINTWISE_Y      = 753,
    DNN_OPERATION_POINTWISE_ALPHA1 = 754,
    DNN_OPERATION_POINTWISE_ALPHA2 = 755,
    DNN_OPERATION_POINTWISE_T      = 758,
    DNN_GRAPH_HANDLE               = 800,
    DNN_GRAPH_OPERATIONS           = 801,
    DNN_TENSOR_ALIGNMENT           = 900,
    DNN_TENSOR_DATA_TYPE           = 901,
    DNN_TENSOR_DIMENSIONS          = 902,
    DNN_TENSOR_STRIDES             = 903,
    DNN_TENSOR_UNIQUE_ID           = 906,
    DNN_TENSOR_IS_VIRTUAL          = 907,
    DNN_TENSOR_IS_BY_VALUE         = 908,
    DNN_PACK_UNIQUE_IDS            = 1000,
    DNN_PACK_POINTERS              = 1001,
    DNN_PACK_WORKSPACE             = 1003,
    DNN_ENGINE_INDEX               = 1301,
    DNN_MATMUL_COMPUTE_TYPE        = 1500,
    DNN_OPERATION_MATMUL_A         = 1520,
    DNN_OPERATION_MATMUL_B         = 1521,
    DNN_OPERATION_MATMUL_C         = 1522,
    DNN_OPERATION_MATMUL_DESC      = 1523,
    DNN_REDUCTION_OPERATOR         = 1600,
    DNN_REDUCTION_COMPUTE_TYPE     = 1601,
    DNN_OPERATION_REDUCTION_X      = 1610,
    DNN_OPERATION_REDUCTION_Y      = 1611,
    DNN_OPERATION_REDUCTION_DESC   = 1612,
    DNN_OPERATION_RESHAPE_X        = 2200,
    DNN_OPERATION_RESHAPE_Y        = 2201,
    DNN_DEVICE_JSON                = 2702
};

enum { /* cudnnPointwiseMode_t */
    DNN_ADD       = 0,
    DNN_MUL       = 1,
    DNN_DIV       = 6,
    DNN_SUB       = 9,
    DNN_EXP       = 13,
    DNN_LOG       = 15,
    DNN_CMP_GE    = 303,
    DNN_GEN_INDEX = 501,
    DNN_SELECT    = 601
};

enum { /* cudnnReduceTensorOp_t, cudnnBackendHeurMode_t */
    DNN_REDUCE_ADD    = 0,
    DNN_REDUCE_MAX    = 3,
    DNN_MODE_FALLBACK = 2,
    DNN_MODE_A        = 3,
    DNN_MOST_KNOBS    = 64
};

#endif
